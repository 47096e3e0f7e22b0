"""Self-contained pages with plots: one HTML file each, SVG inside, nothing loaded from anywhere, light and dark."""
