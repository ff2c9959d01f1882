"""REST API of the watcher: routes, responses, OpenAPI document, and the service that runs them."""
