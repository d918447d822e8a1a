// The "re2" backend: the kernels of RegexFullMatch and Tokenizer, with the library RE2. Every
// header of this folder includes this header first.
#ifndef OPKIT_BACKENDS_RE2_BACKEND_HPP_
#define OPKIT_BACKENDS_RE2_BACKEND_HPP_

#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

inline constexpr const char* kRe2Backend = "re2";
inline constexpr int kRe2Rank = 100;
OPKIT_REGISTER_BACKEND_RANK(kRe2Backend, kRe2Rank);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_RE2_BACKEND_HPP_
