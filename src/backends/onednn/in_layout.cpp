// Cheap operators of opkit::onednn, which keep the layout of their input.
#include "opkit/backends/onednn/concat.hpp"
#include "opkit/backends/onednn/elementwise.hpp"
#include "opkit/backends/onednn/normalization.hpp"
#include "opkit/backends/onednn/pool.hpp"
#include "opkit/backends/onednn/reduce.hpp"
#include "opkit/backends/onednn/resize.hpp"
