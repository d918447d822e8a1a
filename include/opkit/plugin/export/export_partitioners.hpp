// Exports the partitioners and passes that a library registers by the typed REGISTER_PARTITIONER
// and by REGISTER_PASS. Included if a unit includes both partition.hpp and plugin/author.hpp.
#ifndef OPKIT_PLUGIN_EXPORT_EXPORT_PARTITIONERS_HPP_
#define OPKIT_PLUGIN_EXPORT_EXPORT_PARTITIONERS_HPP_

#include "opkit/plugin/export/library_export.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Adds the registered partitioners and passes; none if the host is this program itself.
OPKIT_IMAGE_LOCAL void AddRegisteredPartitioners(LibraryContents& contents);

[[maybe_unused]] OPKIT_IMAGE_LOCAL inline const bool kExportsRegisteredPartitioners =
    (LibraryContents::Global().add_partitioners = &AddRegisteredPartitioners, true);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/export/impl/export_partitioners.ipp"
#endif

#endif  // OPKIT_PLUGIN_EXPORT_EXPORT_PARTITIONERS_HPP_
