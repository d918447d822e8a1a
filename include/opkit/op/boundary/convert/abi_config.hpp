// Kernel configurations, and tensors in layouts, across the ABI. Layouts are passed by name,
// because each image has its own numbers for them.
#ifndef OPKIT_OP_BOUNDARY_CONVERT_ABI_CONFIG_HPP_
#define OPKIT_OP_BOUNDARY_CONVERT_ABI_CONFIG_HPP_

#include "opkit/abi/opkit_abi.h"
#include "opkit/op/kernel.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// An opkit_config with the arrays that it points to. Throws kUnsupported for a layout with a
// descriptor, which only its own image knows.
class OPKIT_IMAGE_LOCAL AbiConfig {
 public:
  AbiConfig(const KernelConfig& config, size_t num_inputs, size_t num_outputs);
  AbiConfig(const AbiConfig&) = delete;
  const opkit_config& config() const { return config_; }

 private:
  opkit_config config_{};
  std::vector<const char*> inputs_, outputs_;
  std::vector<int32_t> inplace_;
  const std::string variant_;
};

// Reads a configuration. Throws kInvalidArgument for a struct that is no valid configuration;
// kNotFound for a layout that this image does not know.
OPKIT_IMAGE_LOCAL KernelConfig ConfigOfAbi(const opkit_config* config, size_t num_inputs,
                                           size_t num_outputs);
// Returns the layout of that name; the standard layout for null.
OPKIT_IMAGE_LOCAL Layout LayoutOfAbi(const char* name);
// Like TensorOfView, for a tensor in a layout; null is the standard layout.
OPKIT_IMAGE_LOCAL Tensor TensorInLayout(const opkit_tensor& view, const char* layout);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/boundary/convert/impl/abi_config.ipp"
#endif

#endif  // OPKIT_OP_BOUNDARY_CONVERT_ABI_CONFIG_HPP_
