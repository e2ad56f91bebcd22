// A service may run without its console.
fetch('./', { method: 'HEAD' }).then((answer) => { document.getElementById('way-back').hidden = !answer.ok })
// Everything is asked of the service that answered the page, and nobody else is told what is tried here.
window.ui = SwaggerUIBundle({
  url: 'openapi.json',
  dom_id: '#swagger-ui',
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: 'none',
  filter: true,
  persistAuthorization: true,
  tryItOutEnabled: true,
  validatorUrl: null,
})
