// Our declarations of tvm-ffi's C boundary against the header of its wheel, where it is. Without it
// the sizes alone are compared.
#include "opkit/export/tvm_ffi_abi.hpp"

#include <cstddef>
#include <type_traits>

#include <doctest/doctest.h>

#if __has_include(<tvm/ffi/extra/c_env_api.h>)
#include <tvm/ffi/extra/c_env_api.h>
#elif __has_include(<tvm/ffi/c_api.h>)
#include <tvm/ffi/c_api.h>
#endif

namespace tvm_ffi_abi_test { namespace {

namespace ours = opkit::tvm_ffi;

TEST_CASE("the structs have the sizes of tvm-ffi 0.1") {
  CHECK(sizeof(ours::Any) == 16);
  CHECK(sizeof(ours::Object) == 24);
  CHECK(sizeof(ours::ByteArray) == 16);
  CHECK(sizeof(ours::ShapeCell) == 16);
  CHECK(offsetof(ours::Any, v_int64) == 8);
}

#ifdef TVM_FFI_VERSION_MAJOR
#define OPKIT_SAME_MEMBER(our, our_member, their, their_member)            \
  CHECK(offsetof(ours::our, our_member) == offsetof(their, their_member)); \
  CHECK(sizeof(ours::our::our_member) == sizeof(their::their_member))

TEST_CASE("the declarations are those of the header") {
  CHECK(sizeof(ours::Any) == sizeof(TVMFFIAny));
  CHECK(sizeof(ours::Object) == sizeof(TVMFFIObject));
  CHECK(sizeof(ours::ByteArray) == sizeof(TVMFFIByteArray));
  CHECK(sizeof(ours::ShapeCell) == sizeof(TVMFFIShapeCell));
  OPKIT_SAME_MEMBER(Any, type_index, TVMFFIAny, type_index);
  OPKIT_SAME_MEMBER(Any, small_str_len, TVMFFIAny, small_str_len);
  OPKIT_SAME_MEMBER(Any, v_int64, TVMFFIAny, v_int64);
  OPKIT_SAME_MEMBER(Any, v_float64, TVMFFIAny, v_float64);
  OPKIT_SAME_MEMBER(Any, v_obj, TVMFFIAny, v_obj);
  OPKIT_SAME_MEMBER(Any, v_bytes, TVMFFIAny, v_bytes);
  OPKIT_SAME_MEMBER(Object, type_index, TVMFFIObject, type_index);
  OPKIT_SAME_MEMBER(Object, deleter, TVMFFIObject, deleter);
  OPKIT_SAME_MEMBER(ByteArray, data, TVMFFIByteArray, data);
  OPKIT_SAME_MEMBER(ByteArray, size, TVMFFIByteArray, size);
  OPKIT_SAME_MEMBER(ShapeCell, data, TVMFFIShapeCell, data);
  OPKIT_SAME_MEMBER(ShapeCell, size, TVMFFIShapeCell, size);
  CHECK(int{ours::kNone} == int{kTVMFFINone});
  CHECK(int{ours::kInt} == int{kTVMFFIInt});
  CHECK(int{ours::kBool} == int{kTVMFFIBool});
  CHECK(int{ours::kFloat} == int{kTVMFFIFloat});
  CHECK(int{ours::kDLTensorPtr} == int{kTVMFFIDLTensorPtr});
  CHECK(int{ours::kRawStr} == int{kTVMFFIRawStr});
  CHECK(int{ours::kSmallStr} == int{kTVMFFISmallStr});
  CHECK(int{ours::kObjectBegin} == int{kTVMFFIStaticObjectBegin});
  CHECK(int{ours::kStr} == int{kTVMFFIStr});
  CHECK(int{ours::kFunction} == int{kTVMFFIFunction});
  CHECK(int{ours::kShape} == int{kTVMFFIShape});
  CHECK(int{ours::kTensor} == int{kTVMFFITensor});
  CHECK(int{ours::kArray} == int{kTVMFFIArray});
  CHECK(int{ours::kList} == int{kTVMFFIList});
}

// The functions' types, with the header's structs in the place of ours.
using TheirCall = int (*)(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);
static_assert(std::is_same_v<TVMFFISafeCallType, TheirCall>);
static_assert(std::is_same_v<decltype(&TVMFFIErrorSetRaisedFromCStr),
                             decltype(ours::Api::ErrorSetRaisedFromCStr)>);
static_assert(std::is_same_v<decltype(&TVMFFIObjectDecRef), decltype(ours::Api::ObjectDecRef)>);
static_assert(std::is_same_v<decltype(&TVMFFITensorFromDLPackVersioned),
                             int (*)(DLManagedTensorVersioned*, int32_t, int32_t, void**)>);
static_assert(std::is_same_v<decltype(&TVMFFIFunctionCreate),
                             int (*)(void*, TheirCall, void (*)(void*), void**)>);
static_assert(
    std::is_same_v<decltype(&TVMFFIFunctionGetGlobal), int (*)(const TVMFFIByteArray*, void**)>);
static_assert(
    std::is_same_v<decltype(&TVMFFIFunctionCall), int (*)(void*, TVMFFIAny*, int32_t, TVMFFIAny*)>);
static_assert(std::is_same_v<decltype(&TVMFFIStringFromByteArray),
                             int (*)(const TVMFFIByteArray*, TVMFFIAny*)>);
#endif
#ifdef TVM_FFI_EXTRA_C_ENV_API_H_
static_assert(std::is_same_v<decltype(&TVMFFIEnvGetStream), decltype(ours::Api::EnvGetStream)>);
#endif

}}  // namespace tvm_ffi_abi_test
