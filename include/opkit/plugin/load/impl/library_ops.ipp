// Makes the record of a library's operator call the library.
#ifndef OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_OPS_IPP_
#define OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_OPS_IPP_

#include "opkit/op/fusion.hpp"
#include "opkit/op/kernel_candidates.hpp"
#include "opkit/plugin/load/impl/library_hooks.ipp"
#include "opkit/plugin/load/impl/library_kernels.ipp"
#include "opkit/plugin/load/library_ops.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Makes a record, which was read from `op`, call the library's functions.
OPKIT_INLINE void BindRecord(FunctionOpRecord& record, const LibraryImagePtr& image,
                             const opkit_op& op) {
  record.library = image->name;
  record.library_name = image->announced;
  if (const char* version = image->library->version) record.library_version = version;
  if (OPKIT_ABI_HAS(image->library, own_version) && image->library->own_version)
    record.library_version = image->library->own_version;
  record.hooks = MakeIntrusive<LibraryHooks>(image, &op, record.abi);
  for (size_t k = 0; k < record.devices.size(); ++k) {
    FunctionDevice& device = record.devices[k];
    device.create_state = [image, original = op.kernels[k], kernel = device.abi,
                           calls = MakeIntrusive<KernelCalls>()](
                              const AttrMap&, const OpContext& context,
                              IntrusivePtr<StatefulOp>& state) -> OpStatus {
      state = MakeIntrusive<LibraryInstance>(image, original, kernel, context, calls);
      return {};
    };
    if (!device.abi.propose) continue;
    UseSelection();
    device.propose = [image, original = op.kernels[k],
                      kernel = device.abi](const KernelQuery& query) {
      return LibraryProposals(*image, query).Collect(original, kernel, query);
    };
    if (!device.abi.fuse) continue;
    device.fuse = [image, original = op.kernels[k], kernel = device.abi](const FusionQuery& query) {
      return LibraryFusion::Offer(*image, original, kernel, query);
    };
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_OPS_IPP_
