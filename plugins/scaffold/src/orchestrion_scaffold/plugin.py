"""No components: this distribution supplies the command `new`."""
