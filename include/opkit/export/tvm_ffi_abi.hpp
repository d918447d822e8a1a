// Our own declarations of tvm-ffi's C boundary, as far as an exported operator needs it
// (github.com/apache/tvm-ffi, tvm/ffi/c_api.h; equal in 0.1.3 to 0.1.15). A test compares them with
// the real header. The host's functions are found by name at run time.
#ifndef OPKIT_EXPORT_TVM_FFI_ABI_HPP_
#define OPKIT_EXPORT_TVM_FFI_ABI_HPP_

#include <cstddef>
#include <cstdint>

#include "opkit/core/dlpack.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace tvm_ffi {

// The types of an Any. Objects begin at 64.
enum TypeIndex : int32_t {
  kNone = 0,
  kInt = 1,
  kBool = 2,
  kFloat = 3,
  kDLTensorPtr = 7,
  kRawStr = 8,
  kSmallStr = 11,
  kObjectBegin = 64,
  kStr = 65,
  kFunction = 68,
  kShape = 69,
  kTensor = 70,
  kArray = 71,
  kList = 75,
};

// The header of every object. The fields of its type follow it.
struct Object {
  uint64_t combined_ref_count;
  int32_t type_index;
  uint32_t padding;
  void (*deleter)(void* self, int flags);
};

// A value: an argument, which its caller owns, or a result, which its receiver owns.
struct Any {
  int32_t type_index;
  uint32_t small_str_len;  // of kSmallStr; 0 for other types
  union {
    int64_t v_int64;
    double v_float64;
    void* v_ptr;
    const char* v_c_str;
    Object* v_obj;
    char v_bytes[8];  // of kSmallStr
  };
};

// Follows the header of a kStr.
struct ByteArray {
  const char* data;
  size_t size;
};
// Follows the header of a kShape.
struct ShapeCell {
  const int64_t* data;
  size_t size;
};

using SafeCall = int (*)(void* handle, const Any* args, int32_t num_args, Any* result);

// The host's functions. Those that return an int return 0 for success.
struct Api {
  void (*ErrorSetRaisedFromCStr)(const char* kind, const char* message);
  int (*TensorFromDLPackVersioned)(dlpack::DLManagedTensorVersioned* from,
                                   int32_t require_alignment, int32_t require_contiguous,
                                   void** out);
  int (*FunctionCreate)(void* self, SafeCall call, void (*deleter)(void* self), void** out);
  int (*FunctionGetGlobal)(const ByteArray* name, void** out);
  int (*FunctionCall)(void* function, Any* args, int32_t num_args, Any* result);
  int (*StringFromByteArray)(const ByteArray* input, Any* out);
  int (*ObjectDecRef)(void* object);
  void* (*EnvGetStream)(int32_t device_type, int32_t device_id);
};

}}}  // namespace opkit::tvm_ffi

#endif  // OPKIT_EXPORT_TVM_FFI_ABI_HPP_
