"""HTTP requests and responses: routes, authentication, problem documents, the OpenAPI document."""
