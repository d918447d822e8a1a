// Our declarations of XLA's foreign function interface against the header that jaxlib brings, where
// it is. Without it the sizes alone are compared, with those of version 0.3.
#include "opkit/export/xla_abi.hpp"

#include <doctest/doctest.h>

#if __has_include(<xla/ffi/api/c_api.h>)
#include <xla/ffi/api/c_api.h>
#endif

namespace xla_abi_test { namespace {

namespace xla = opkit::detail::xla;

TEST_CASE("the structs have the sizes of version 0.3") {
  CHECK(sizeof(xla::Api) == 8 * (2 + 3 + 1 + 18));
  CHECK(sizeof(xla::CallFrame) == 8 * (2 + 3 + 5 + 5 + 6 + 1));
  CHECK(sizeof(xla::Buffer) == 48);
  CHECK(sizeof(xla::Metadata) == 48);
  CHECK(xla::Sized(xla::Api{}).struct_size == sizeof(xla::Api));
}

#ifdef XLA_FFI_API_MAJOR
// Returns the offset of a member. offsetof does not take a struct with a base.
template <class Struct, class Member>
size_t OffsetOf(Member Struct::*member) {
  static const Struct object{};
  return static_cast<size_t>(reinterpret_cast<const char*>(&(object.*member)) -
                             reinterpret_cast<const char*>(&object));
}
#define OPKIT_SAME_MEMBER(ours, our_member, theirs, their_member)            \
  CHECK(OffsetOf(&xla::ours::our_member) == offsetof(theirs, their_member)); \
  CHECK(sizeof(xla::ours::our_member) == sizeof(theirs::their_member))

TEST_CASE("the declarations are those of jaxlib's header") {
  CHECK(xla::kMajorVersion == XLA_FFI_API_MAJOR);
  CHECK(xla::kMinorVersion <= XLA_FFI_API_MINOR);
  CHECK(sizeof(xla::CallFrame) == sizeof(XLA_FFI_CallFrame));
  CHECK(sizeof(xla::Buffer) == sizeof(XLA_FFI_Buffer));
  CHECK(sizeof(xla::Metadata) == sizeof(XLA_FFI_Metadata));
  CHECK(sizeof(xla::Attributes) == sizeof(XLA_FFI_Attrs));
  CHECK(sizeof(xla::Values) == sizeof(XLA_FFI_Args));
  CHECK(sizeof(xla::StateArgs) == sizeof(XLA_FFI_State_Set_Args));
  CHECK(sizeof(xla::StateArgs) == sizeof(XLA_FFI_State_Get_Args));
  CHECK(sizeof(xla::ErrorCreateArgs) == sizeof(XLA_FFI_Error_Create_Args));
  CHECK(sizeof(xla::ThreadPoolScheduleArgs) == sizeof(XLA_FFI_ThreadPool_Schedule_Args));
  CHECK(sizeof(xla::ThreadPoolNumThreadsArgs) == sizeof(XLA_FFI_ThreadPool_NumThreads_Args));
  CHECK(sizeof(xla::DeviceOrdinalGetArgs) == sizeof(XLA_FFI_DeviceOrdinal_Get_Args));
  CHECK(sizeof(xla::FutureSetErrorArgs) == sizeof(XLA_FFI_Future_SetError_Args));
  OPKIT_SAME_MEMBER(CallFrame, api, XLA_FFI_CallFrame, api);
  OPKIT_SAME_MEMBER(CallFrame, stage, XLA_FFI_CallFrame, stage);
  OPKIT_SAME_MEMBER(CallFrame, args, XLA_FFI_CallFrame, args);
  OPKIT_SAME_MEMBER(CallFrame, rets, XLA_FFI_CallFrame, rets);
  OPKIT_SAME_MEMBER(CallFrame, attrs, XLA_FFI_CallFrame, attrs);
  OPKIT_SAME_MEMBER(CallFrame, future, XLA_FFI_CallFrame, future);
  OPKIT_SAME_MEMBER(Buffer, dtype, XLA_FFI_Buffer, dtype);
  OPKIT_SAME_MEMBER(Buffer, data, XLA_FFI_Buffer, data);
  OPKIT_SAME_MEMBER(Buffer, dims, XLA_FFI_Buffer, dims);
  OPKIT_SAME_MEMBER(Metadata, version, XLA_FFI_Metadata, api_version);
  OPKIT_SAME_MEMBER(Metadata, state_type_id, XLA_FFI_Metadata, state_type_id);
  OPKIT_SAME_MEMBER(StateArgs, type_id, XLA_FFI_State_Set_Args, type_id);
  OPKIT_SAME_MEMBER(Attributes, names, XLA_FFI_Attrs, names);
  OPKIT_SAME_MEMBER(Api, error_create, XLA_FFI_Api, XLA_FFI_Error_Create);
  OPKIT_SAME_MEMBER(Api, error_destroy, XLA_FFI_Api, XLA_FFI_Error_Destroy);
  OPKIT_SAME_MEMBER(Api, stream_get, XLA_FFI_Api, XLA_FFI_Stream_Get);
  OPKIT_SAME_MEMBER(Api, state_set, XLA_FFI_Api, XLA_FFI_State_Set);
  OPKIT_SAME_MEMBER(Api, state_get, XLA_FFI_Api, XLA_FFI_State_Get);
  OPKIT_SAME_MEMBER(Api, thread_pool_schedule, XLA_FFI_Api, XLA_FFI_ThreadPool_Schedule);
  OPKIT_SAME_MEMBER(Api, thread_pool_num_threads, XLA_FFI_Api, XLA_FFI_ThreadPool_NumThreads);
  OPKIT_SAME_MEMBER(Api, future_create, XLA_FFI_Api, XLA_FFI_Future_Create);
  OPKIT_SAME_MEMBER(Api, future_set_available, XLA_FFI_Api, XLA_FFI_Future_SetAvailable);
  OPKIT_SAME_MEMBER(Api, future_set_error, XLA_FFI_Api, XLA_FFI_Future_SetError);
  OPKIT_SAME_MEMBER(Api, device_ordinal_get, XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get);
  const auto same = [](auto ours, auto theirs) {
    return static_cast<int>(ours) == static_cast<int>(theirs);
  };
  using enum xla::DataType;
  CHECK(same(kPred, XLA_FFI_DataType_PRED));
  CHECK(same(kS8, XLA_FFI_DataType_S8));
  CHECK(same(kS16, XLA_FFI_DataType_S16));
  CHECK(same(kS32, XLA_FFI_DataType_S32));
  CHECK(same(kS64, XLA_FFI_DataType_S64));
  CHECK(same(kU8, XLA_FFI_DataType_U8));
  CHECK(same(kU16, XLA_FFI_DataType_U16));
  CHECK(same(kU32, XLA_FFI_DataType_U32));
  CHECK(same(kU64, XLA_FFI_DataType_U64));
  CHECK(same(kF16, XLA_FFI_DataType_F16));
  CHECK(same(kBF16, XLA_FFI_DataType_BF16));
  CHECK(same(kF32, XLA_FFI_DataType_F32));
  CHECK(same(kF64, XLA_FFI_DataType_F64));
  CHECK(same(kC64, XLA_FFI_DataType_C64));
  CHECK(same(kC128, XLA_FFI_DataType_C128));
  CHECK(same(xla::AttributeKind::kArray, XLA_FFI_AttrType_ARRAY));
  CHECK(same(xla::AttributeKind::kDictionary, XLA_FFI_AttrType_DICTIONARY));
  CHECK(same(xla::AttributeKind::kScalar, XLA_FFI_AttrType_SCALAR));
  CHECK(same(xla::AttributeKind::kString, XLA_FFI_AttrType_STRING));
  CHECK(same(xla::Stage::kInstantiate, XLA_FFI_ExecutionStage_INSTANTIATE));
  CHECK(same(xla::Stage::kExecute, XLA_FFI_ExecutionStage_EXECUTE));
  CHECK(same(xla::ErrorKind::kInvalidArgument, XLA_FFI_Error_Code_INVALID_ARGUMENT));
  CHECK(same(xla::ErrorKind::kInternal, XLA_FFI_Error_Code_INTERNAL));
  CHECK(same(xla::ErrorKind::kUnimplemented, XLA_FFI_Error_Code_UNIMPLEMENTED));
}
#undef OPKIT_SAME_MEMBER
#endif

}}  // namespace xla_abi_test
