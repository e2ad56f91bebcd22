"""Commands that call a service over HTTP only; of the service's code they import only the core."""
