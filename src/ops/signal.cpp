// Operators of opkit::ops that process signals.
#include "opkit/ops/signal/window_function.hpp"
