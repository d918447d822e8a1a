// The library that xla_jax_test.py calls from JAX.
#include "../xla_operators.hpp"
