"""HTTP: routes, request bodies, errors, limits against broken clients, documentation."""
