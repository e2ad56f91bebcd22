"""A visit and what surrounds it: cookies, the gate, assets, failures, addresses."""
