// Operators of opkit::ops that process signals.
#include "opkit/ops/signal/dft.hpp"
#include "opkit/ops/signal/mel_weight_matrix.hpp"
#include "opkit/ops/signal/stft.hpp"
#include "opkit/ops/signal/window_function.hpp"
