// Conversions of opkit_config in both directions.
#ifndef OPKIT_OP_BOUNDARY_CONVERT_IMPL_ABI_CONFIG_IPP_
#define OPKIT_OP_BOUNDARY_CONVERT_IMPL_ABI_CONFIG_IPP_

#include "opkit/core/layout_hooks.hpp"
#include "opkit/op/boundary/convert/abi_attributes.hpp"
#include "opkit/op/boundary/convert/abi_config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_COLD OPKIT_IMAGE_LOCAL inline void NameLayouts(const std::vector<Layout>& layouts,
                                                     size_t count,
                                                     std::vector<const char*>& names) {
  bool all_standard = true;
  for (const Layout& layout : layouts) all_standard &= layout.is_standard();
  if (all_standard) return;
  if (layouts.size() != count)
    Throw(ErrorCode::kInvalidArgument, "a configuration has ", layouts.size(),
          " layouts, expected ", count);
  for (const Layout& layout : layouts) {
    if (layout.descriptor)
      Throw(ErrorCode::kUnsupported, "the layout ", ToString(layout),
            " has a descriptor, and layouts go to another image by their names alone; register one "
            "layout for each blocking");
    if (!layout.is_standard() && !(g_is_registered_layout && g_is_registered_layout(layout.id)))
      Throw(ErrorCode::kNotFound, "a configuration has ", ToString(layout),
            ", which is not registered; RegisterLayout gives the id");
    names.push_back(layout.is_standard() ? nullptr : g_layout_name_pointer(layout.id));
  }
}

OPKIT_COLD OPKIT_INLINE AbiConfig::AbiConfig(const KernelConfig& config, size_t num_inputs,
                                             size_t num_outputs)
    : variant_(config.variant) {
  NameLayouts(config.input_layouts, num_inputs, inputs_);
  NameLayouts(config.output_layouts, num_outputs, outputs_);
  for (const auto& [input, output] : config.inplace) {
    inplace_.push_back(input);
    inplace_.push_back(output);
  }
  config_.size = sizeof config_;
  config_.input_layouts = inputs_.empty() ? nullptr : inputs_.data();
  config_.output_layouts = outputs_.empty() ? nullptr : outputs_.data();
  config_.num_inplace = config.inplace.size();
  config_.inplace = inplace_.data();
  config_.scratch_bytes = config.scratch_bytes;
  config_.cost_ns = config.cost_ns;
  if (!variant_.empty()) config_.variant = variant_.c_str();
}

OPKIT_INLINE Layout LayoutOfAbi(const char* name) {
  return name ? Layout{g_find_layout(TextOfAbi(name)), {}} : Layout();
}
OPKIT_INLINE Tensor TensorInLayout(const opkit_tensor& view, const char* layout_name) {
  if (!layout_name) return TensorOfView(view);
  RequireView(&view, "a tensor of a library ");
  const Layout layout = LayoutOfAbi(layout_name);
  const Device device{static_cast<DeviceType>(view.device_type), view.device_index};
  const auto dtype = static_cast<DType>(view.dtype);
  Shape shape(Dims(view.shape, static_cast<size_t>(view.rank)));
  const int64_t bytes = g_layout_bytes(layout, shape, dtype);
  return Tensor::FromLayout(AdoptStorage(MemoryDevice(device), view.data, bytes), std::move(shape),
                            dtype, layout);
}
OPKIT_COLD OPKIT_INLINE KernelConfig ConfigOfAbi(const opkit_config* from, size_t num_inputs,
                                                 size_t num_outputs) {
  if (!IsReadable(from))
    Throw(ErrorCode::kInvalidArgument, "a configuration is null, not aligned or shorter than the ",
          kFirstBytes<opkit_config>, " bytes of version 1.3",
          "; fill in opkit_config.size with sizeof(opkit_config)");
  const opkit_config& config = *from;
  if (config.num_inplace > kMostParts || (config.num_inplace > 0 && !config.inplace) ||
      !IsAligned(config.inplace))
    Throw(ErrorCode::kInvalidArgument, "a configuration has ", config.num_inplace,
          " pairs in place", config.inplace ? "" : ", which are null");
  if (!IsAligned(config.input_layouts) || !IsAligned(config.output_layouts))
    Throw(ErrorCode::kInvalidArgument, "a configuration has layouts that are not aligned");
  KernelConfig read;
  const auto add = [](const char* const* names, size_t count, std::vector<Layout>& layouts) {
    for (size_t i = 0; names && i < count; ++i) layouts.push_back(LayoutOfAbi(names[i]));
  };
  add(config.input_layouts, num_inputs, read.input_layouts);
  add(config.output_layouts, num_outputs, read.output_layouts);
  for (uint64_t i = 0; i < config.num_inplace; ++i)
    read.inplace.emplace_back(config.inplace[2 * i], config.inplace[2 * i + 1]);
  read.scratch_bytes = config.scratch_bytes;
  read.cost_ns = config.cost_ns;
  if (OPKIT_ABI_HAS(&config, variant)) read.variant = TextOfAbi(config.variant);
  return read;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_CONVERT_IMPL_ABI_CONFIG_IPP_
