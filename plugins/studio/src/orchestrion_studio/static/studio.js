// Makes plots interactive, follows a run, and remembers dark or light.
