"""What tries the guarantees: simulation, faults, soak, mutations, fuzz. See README.md."""
