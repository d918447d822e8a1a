// Describes the partitioners and passes of a library's registries to its host.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_PARTITIONERS_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_PARTITIONERS_IPP_

#include "opkit/graph/partition/register_partitioner.hpp"
#include "opkit/op/boundary/host/host_inference.hpp"
#include "opkit/plugin/export/export_partitioners.hpp"
#include "opkit/plugin/export/exported_partitioner.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void AddRegisteredPartitioners(LibraryContents& contents) {
  if (IsProgramHost(g_host)) return;
  for (const std::string& name : PartitionerRegistry::Global().Names())
    AddExported<ExportedPartitioner>(contents, contents.partitioners,
                                     PartitionerRegistry::Global().Get(name));
  for (const std::string& name : RegisteredPasses())
    AddExported<ExportedPass>(contents, contents.passes, GetPass(name));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_PARTITIONERS_IPP_
