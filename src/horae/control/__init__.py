"""What people may ask: one service behind every surface. So far previews, which need no store."""
