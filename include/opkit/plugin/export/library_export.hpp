// Collects the operators of a library from its units, and describes them to the host that loads it.
#ifndef OPKIT_PLUGIN_EXPORT_LIBRARY_EXPORT_HPP_
#define OPKIT_PLUGIN_EXPORT_LIBRARY_EXPORT_HPP_

#include "opkit/op/function_op.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The contents of this shared object. Every loaded library has its own.
struct LibraryContents {
  OPKIT_IMAGE_LOCAL static LibraryContents& Global();
  std::vector<FunctionRecord> records;  // the operators of REGISTER_OP
  OpStatus (*initialize)(int host_major, int host_minor) = nullptr;
  void (*finalize)() = nullptr;
  const char* own_version = nullptr;
  // Fills in the records of REGISTER_OP and appends each record once to `records`. Null if the
  // library has no such operator.
  OpStatus (*add_records)(std::vector<FunctionRecord>& records) = nullptr;
  // Adds the operators of op/'s registries; set if a unit includes opkit.hpp.
  void (*add_registered)(std::vector<FunctionRecord>& records) = nullptr;
  // Adds the layouts and devices; set if a unit includes opkit.hpp.
  void (*add_layouts)(LibraryContents& contents) = nullptr;
  // Adds the partitioners and passes of graph/'s registries; set if a unit includes partition.hpp.
  void (*add_partitioners)(LibraryContents& contents) = nullptr;
  // Partitioners of REGISTER_PARTITIONER in units that do not include partition.hpp.
  RefCountedList own_partitioners;
  std::vector<const opkit_partitioner*> own_partitioner_pointers;

  RefCountedList owners;  // keep the objects that the lists below point to
  std::vector<const opkit_op*> ops;
  std::vector<const opkit_layout*> layouts;
  std::vector<const opkit_layout_converter*> layout_converters;
  std::vector<const opkit_device*> devices;
  std::vector<const opkit_partitioner*> partitioners;
  std::vector<const opkit_pass*> passes;
  std::vector<const opkit_backend*> backends;
  opkit_library library{};
};

// Makes an exported object, adds it to a list, and keeps it alive in `contents`.
template <class Exported, class Struct, class... From>
void AddExported(LibraryContents& contents, std::vector<const Struct*>& list, From&&... from) {
  auto made = MakeIntrusive<Exported>(std::forward<From>(from)...);
  list.push_back(&made->abi);
  contents.owners.push_back(std::move(made));
}
OPKIT_IMAGE_LOCAL void AddToLibrary(const FunctionRecord& record);

// Makes a function of opkit_abi.h from `kBody`, a member of Author or a function that takes an
// Author: the struct's `author` replaces the struct. Failures of kBody are reported to the host.
template <class Author, auto kBody, class Struct, class... Args>
OPKIT_IMAGE_LOCAL opkit_status GuardBy(const Struct* self, Args... args) {
  return GuardedCall([&] {
    auto& author = *static_cast<Author*>(const_cast<void*>(self->author));
    if constexpr (std::is_member_function_pointer_v<decltype(kBody)>)
      return (author.*kBody)(args...);
    else
      return kBody(author, args...);
  });
}

// The bodies of an opkit_op's functions whose `author` is a record. Each calls the record's
// function with copies of the host's attributes, types and shapes.
struct OPKIT_IMAGE_LOCAL RecordFunctions {
  using Record = FunctionOpRecord;
  static OpStatus ParseAttrs(Record& record, const opkit_node* node, int32_t* num_inputs,
                             int32_t* num_outputs);
  static OpStatus InferType(Record& record, const opkit_node* node, opkit_value* inputs,
                            opkit_value* outputs);
  static OpStatus InferShape(Record& record, const opkit_node* node, opkit_value* inputs,
                             opkit_value* outputs);
  static OpStatus MutatedInputs(Record& record, const opkit_node* node, uint8_t* mutated);
  static void Cost(Record& record, const opkit_node* node, const opkit_value* inputs,
                   const opkit_value* outputs, opkit_cost* cost);
  static void ScratchBytes(Record& record, const opkit_node* node, const opkit_value* inputs,
                           int64_t* bytes);
};
// The functions forward and backward of an opkit_kernel.
OPKIT_IMAGE_LOCAL opkit_status RunForward(void* instance, const opkit_call* call);
OPKIT_IMAGE_LOCAL opkit_status RunBackward(void* instance, const opkit_call* call);

// Describes the library to `host`; opkit_library_entry calls it. Returns null after a failure,
// which it has reported to the host.
OPKIT_IMAGE_LOCAL const opkit_library* DescribeLibrary(const opkit_host* host) noexcept;

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/export/impl/library_export.ipp"
#endif

#endif  // OPKIT_PLUGIN_EXPORT_LIBRARY_EXPORT_HPP_
