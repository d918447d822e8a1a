// Operators across the boundary: ExportOp turns a record into an opkit_op, and ImportOp checks a
// library's opkit_op and reads it into a record. A new value of opkit_op is added in
// abi/opkit_abi.h, in FunctionOpRecord and in this header's definitions; CONTRIBUTING.md describes
// how to add a function.
#ifndef OPKIT_OP_BOUNDARY_CONVERT_OP_CONVERSION_HPP_
#define OPKIT_OP_BOUNDARY_CONVERT_OP_CONVERSION_HPP_

#include "opkit/op/function_op.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the device type named "cpu", "gpu" or by its own name; -1 for an unknown name.
int DeviceTypeFromName(std::string_view name);

// Returns the record as an opkit_op, which lives as long as the owner that is added to `owners`.
// The pointers in the record's `abi` are passed on unchanged: its kernels must call the record's
// functions and must not throw.
OPKIT_IMAGE_LOCAL const opkit_op* ExportOp(FunctionRecord record, RefCountedList& owners);

// Reads operator `index` of a library into a record. Its devices, in the order of op.kernels, have
// no functions yet: LibraryOps (plugin/load/library_ops.hpp) calls the kernels. Throws
// kInvalidArgument for every fault of the description.
FunctionRecord ImportOp(const opkit_op* op, uint64_t index, const std::string& library);

// Throws an Error: "library NAME WHAT; MEND".
[[noreturn]] OPKIT_COLD void RefuseDescription(const std::string& library, const Text& what,
                                               const Text& mend = {},
                                               ErrorCode code = ErrorCode::kInvalidArgument);
// Throws for a name that is not one short line of text, or has a character below `least`. Accepts
// null.
void CheckLibraryText(const std::string& library, const char* name, const Text& what,
                      unsigned char least = ' ', const Text& mend = {});
// Throws for a text without a terminating zero. Accepts null.
void CheckLibraryTextEnds(const std::string& library, const char* text, const Text& what);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/boundary/convert/impl/op_conversion.ipp"
#endif

#endif  // OPKIT_OP_BOUNDARY_CONVERT_OP_CONVERSION_HPP_
