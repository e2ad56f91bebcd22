"""Why a row shows what it shows: kept records, simulations, lateness."""
