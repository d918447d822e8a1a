// All kernels of the "re2" backend and the standard operators. Programs that compile them
// themselves include this header in one translation unit and link RE2; with CMake, link opkit::ops
// and opkit::re2 instead.
#ifndef OPKIT_BACKENDS_RE2_ALL_HPP_
#define OPKIT_BACKENDS_RE2_ALL_HPP_

#include "opkit/backends/re2/backend.hpp"
#include "opkit/backends/re2/regex_full_match.hpp"
#include "opkit/backends/re2/tokenizer.hpp"
#include "opkit/ops/all.hpp"

#endif  // OPKIT_BACKENDS_RE2_ALL_HPP_
