// Host of REGISTER_PARTITIONER in a library that does not include opkit/partition.hpp: partitioners
// with MXNet's signatures, which the library's host calls through opkit_partitioner.
#ifndef OPKIT_PLUGIN_EXPORT_LIBRARY_PARTITIONER_HPP_
#define OPKIT_PLUGIN_EXPORT_LIBRARY_PARTITIONER_HPP_

#include "opkit/op/function/partitioner_builder.hpp"
#include "opkit/plugin/export/library_export.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the options of an opkit_partition or opkit_rewrite.
template <class Struct>
OptionStrings OptionsOfAbi(const Struct& from) {
  OptionStrings options;
  for (uint64_t i = 0; i < from.num_options; ++i)
    options.emplace_back(from.option_names[i], from.option_values[i]);
  return options;
}

// A partitioner. Its setters fill in the functions; the host calls them through `abi`.
struct OPKIT_IMAGE_LOCAL LibraryPartitionerRecord : RefCounted, PartitionerRecord {
  LibraryPartitionerRecord(const char* its_name, const char* file, int line);

  SupportedOpsFunction mark;
  AcceptFunction review;
  opkit_partitioner abi{};
};

// The host of a BasicPartitionerBuilder. Adds the partitioner to the library.
class OPKIT_IMAGE_LOCAL LibraryPartitionerHost {
 public:
  template <class F>
  static constexpr bool kTakesMark = false;
  template <class F>
  static constexpr bool kTakesReview = false;

  LibraryPartitionerHost(const char* name, const char* file, int line)
      : record_(MakeIntrusive<LibraryPartitionerRecord>(name, file, line)) {
    LibraryContents::Global().own_partitioners.push_back(record_);
    LibraryContents::Global().own_partitioner_pointers.push_back(&record_->abi);
  }
  LibraryPartitionerRecord& record() { return *record_; }
  SupportedOpsFunction JsonMark(SupportedOpsFunction f) { return f; }
  AcceptFunction JsonReview(AcceptFunction f) { return f; }

 private:
  IntrusivePtr<LibraryPartitionerRecord> record_;
};
// The host of REGISTER_PARTITIONER, unless opkit/partition.hpp declares another.
LibraryPartitionerHost PartitionerHost(...);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/export/impl/library_partitioner.ipp"
#endif

#endif  // OPKIT_PLUGIN_EXPORT_LIBRARY_PARTITIONER_HPP_
