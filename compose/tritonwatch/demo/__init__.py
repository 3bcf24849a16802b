"""The demo: a real Triton watched, its broken model paged, its objectives burning."""
