"""What runs on the other side of the wall: only the standard library is imported here.

The package alone is mounted into sandboxes, under its own name, without the one it is in.
"""
