"""The commands of `biorag`, one module per group: parse, configure, build, call once, print."""
