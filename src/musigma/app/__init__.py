"""The app in the browser and the HTTP API; `musigma.app.server` puts the parts together."""
