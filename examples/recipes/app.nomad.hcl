variable "image" { type = string }

job "app" {
  group "app" {
    network {
      port "http" { to = 8080 }
    }
    task "app" {
      driver = "docker"
      config {
        image = var.image
        ports = ["http"]
      }
    }
  }
}
