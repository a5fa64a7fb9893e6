"""Programs of EXTERNAL tasks: started through a launcher, confined, and ended without leftover processes."""
