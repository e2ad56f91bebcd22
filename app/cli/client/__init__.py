"""What a terminal asks of a service, over HTTP alone: of the service's own code it knows the core."""
