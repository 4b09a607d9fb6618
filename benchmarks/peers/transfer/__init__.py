"""Transfer of pretrained layers to other tasks, compared with other libraries and methods."""
