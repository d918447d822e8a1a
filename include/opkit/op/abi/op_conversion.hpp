// An operator across the boundary: a record as an opkit_op, and an opkit_op of a library, read
// without trusting it, as a record. A new value of opkit_op is added in abi/opkit_abi.h, in
// FunctionOpRecord and in this header's definitions; CONTRIBUTING.md says where a new function is.
#ifndef OPKIT_OP_ABI_OP_CONVERSION_HPP_
#define OPKIT_OP_ABI_OP_CONVERSION_HPP_

#include "opkit/op/function_op.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The device type named "cpu", "gpu" or by its own name; -1 for an unknown name.
int DeviceTypeFromName(std::string_view name);

// The record as an opkit_op, which lasts as long as the owner that is added to `owners`. Its
// kernels call the record's functions and let no exception out; the record's `abi` is handed over
// as it is.
OPKIT_IMAGE_LOCAL const opkit_op* ExportOp(FunctionRecord record, RefCountedList& owners);

// Operator `index` of a library as a record. Its devices, in the order of op.kernels, have no
// functions yet: LibraryOps (plugin/load/library_ops.hpp) calls the kernels. Error
// (kInvalidArgument) for every fault of the description.
FunctionRecord ImportOp(const opkit_op* op, uint64_t index, const std::string& library);

// Throws an Error: "library NAME WHAT; MEND".
[[noreturn]] OPKIT_COLD void RefuseDescription(const std::string& library, const Text& what,
                                               const Text& mend = {},
                                               ErrorCode code = ErrorCode::kInvalidArgument);
// Refuses a name that is no short line of text. A null name passes.
void CheckLibraryText(const std::string& library, const char* name, const Text& what);
// Refuses a text that does not end. A null text passes.
void CheckLibraryTextEnds(const std::string& library, const char* text, const Text& what);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/abi/impl/op_conversion.ipp"
#endif

#endif  // OPKIT_OP_ABI_OP_CONVERSION_HPP_
