// The size of each struct of opkit_abi.h in the version that introduced the struct. A reader of
// another image's struct may rely on this size; a larger struct has members of later versions.
#ifndef OPKIT_OP_BOUNDARY_CONVERT_ABI_STRUCTS_HPP_
#define OPKIT_OP_BOUNDARY_CONVERT_ABI_STRUCTS_HPP_

#include "opkit/abi/opkit_abi.h"
#include "opkit/config.hpp"

struct opkit_config;  // not in version 1.0's opkit_abi.h, which a test puts before this header

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// clang-format off
template <class Struct> inline constexpr uint64_t kFirstBytes = Struct::is_not_in_this_list;
template <> inline constexpr uint64_t kFirstBytes<opkit_tensor> = 72;
template <> inline constexpr uint64_t kFirstBytes<opkit_attr> = 88;
template <> inline constexpr uint64_t kFirstBytes<opkit_graph> = 96;
template <> inline constexpr uint64_t kFirstBytes<opkit_node> = 104;
template <> inline constexpr uint64_t kFirstBytes<opkit_value> = 296;
template <> inline constexpr uint64_t kFirstBytes<opkit_call> = 184;
template <> inline constexpr uint64_t kFirstBytes<opkit_scope> = 64;
template <> inline constexpr uint64_t kFirstBytes<opkit_invocation> = 24;
template <> inline constexpr uint64_t kFirstBytes<opkit_host> = 152;
template <> inline constexpr uint64_t kFirstBytes<opkit_kernel> = 72;
template <> inline constexpr uint64_t kFirstBytes<opkit_parameter> = 56;
template <> inline constexpr uint64_t kFirstBytes<opkit_gradient> = 80;
template <> inline constexpr uint64_t kFirstBytes<opkit_op> = 192;
template <> inline constexpr uint64_t kFirstBytes<opkit_library> = 104;
template <> inline constexpr uint64_t kFirstBytes<opkit_config> = 64;
// clang-format on

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_CONVERT_ABI_STRUCTS_HPP_
