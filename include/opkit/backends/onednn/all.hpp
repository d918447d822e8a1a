// All kernels of the "onednn" backend and the standard operators. Programs that compile them
// themselves include this header in one translation unit; with CMake, link opkit::ops and
// opkit::onednn instead.
#ifndef OPKIT_BACKENDS_ONEDNN_ALL_HPP_
#define OPKIT_BACKENDS_ONEDNN_ALL_HPP_

#include "opkit/backends/onednn/backend.hpp"
#include "opkit/backends/onednn/blocks.hpp"
#include "opkit/backends/onednn/concat.hpp"
#include "opkit/backends/onednn/conv.hpp"
#include "opkit/backends/onednn/conv_transpose.hpp"
#include "opkit/backends/onednn/elementwise.hpp"
#include "opkit/backends/onednn/epilogue.hpp"
#include "opkit/backends/onednn/layout.hpp"
#include "opkit/backends/onednn/matmul.hpp"
#include "opkit/backends/onednn/normalization.hpp"
#include "opkit/backends/onednn/pool.hpp"
#include "opkit/backends/onednn/primitive.hpp"
#include "opkit/backends/onednn/recurrent.hpp"
#include "opkit/backends/onednn/reduce.hpp"
#include "opkit/backends/onednn/resize.hpp"
#include "opkit/backends/onednn/rows.hpp"
#include "opkit/backends/onednn/threads.hpp"
#include "opkit/backends/onednn/types.hpp"
#include "opkit/ops/all.hpp"

#endif  // OPKIT_BACKENDS_ONEDNN_ALL_HPP_
