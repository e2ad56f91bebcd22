"""The OpenAPI document: its bodies, components and declarations, and the page that shows it."""
