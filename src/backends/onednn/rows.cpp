// Normalizations of rows and recurrent layers of opkit::onednn.
#include "opkit/backends/onednn/rows.hpp"
#include "opkit/backends/onednn/recurrent.hpp"
