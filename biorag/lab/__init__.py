"""What trains, sweeps and reproduces: beside the core, which it imports and never the other way round."""
