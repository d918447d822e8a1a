// The part of XLA's foreign function interface that the export uses: version 0.3, the C header
// xla/ffi/api/c_api.h of jaxlib 0.10.2. These are our own declarations, so that an export needs no
// header of XLA. A test compares them with that header. Members keep XLA's order and sizes.
#ifndef OPKIT_EXPORT_XLA_ABI_HPP_
#define OPKIT_EXPORT_XLA_ABI_HPP_

#include <cstddef>
#include <cstdint>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail { namespace xla {

inline constexpr int kMajorVersion = 0;
inline constexpr int kMinorVersion = 3;

// Objects of XLA, known by their addresses.
struct Error;
struct Future;
struct ExecutionContext;

// A list of extensions: questions that a call asks beside the run of its stage.
enum class ExtensionType : uint32_t { kMetadata = 1 };
struct Extension {
  size_t struct_size;
  ExtensionType type;
  Extension* next;
};

// Every struct that may grow begins with its size in bytes and a list of extensions.
struct Versioned {
  size_t struct_size;
  Extension* extensions = nullptr;
};
struct ApiVersion : Versioned {
  int major_version;
  int minor_version;
};

// Codes are those of absl::Status.
enum class ErrorKind : uint32_t {
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
};

// Element types: xla::PrimitiveType. Only those that opkit has.
enum class DataType : uint32_t {
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kC64 = 15,
  kBF16 = 16,
  kC128 = 18,
};

// A dense row-major array in the memory of the call's device.
struct Buffer : Versioned {
  DataType dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};

enum class AttributeKind : uint32_t { kArray = 1, kDictionary = 2, kScalar = 3, kString = 4 };
struct ByteSpan {
  const char* data;
  size_t size;
};
struct Scalar {
  DataType dtype;
  void* value;
};
struct Array {
  DataType dtype;
  size_t size;
  void* data;
};

// A type that XLA knows by a number; the type's registration writes the number.
struct TypeId {
  int64_t value;
};
struct TypeInfo : Versioned {
  void (*deleter)(void* object);
};

enum class Stage : uint32_t { kInstantiate = 0, kPrepare = 1, kInitialize = 2, kExecute = 3 };

// The arguments or the results of a call. `values` point to Buffers.
struct Values : Versioned {
  int64_t size;
  uint32_t* kinds;  // 1: a Buffer
  void** values;
};
// The attributes of a call, sorted by name. `values` point to a Scalar, Array, ByteSpan or
// Attributes, as `kinds` says.
struct Attributes : Versioned {
  int64_t size;
  AttributeKind* kinds;
  ByteSpan** names;
  void** values;
};

// The arguments of the functions in Api.
struct ErrorCreateArgs : Versioned {
  const char* message;
  ErrorKind kind;
};
struct ErrorDestroyArgs : Versioned {
  Error* error;
};
struct FutureCreateArgs : Versioned {
  Future* future;  // out
};
struct FutureSetAvailableArgs : Versioned {
  Future* future;
};
struct FutureSetErrorArgs : Versioned {
  Future* future;
  Error* error;  // XLA's after the call
};
struct StateArgs : Versioned {
  ExecutionContext* context;
  Stage stage;
  TypeId* type_id;
  void* state;  // of StateGet: out
};
struct StreamGetArgs : Versioned {
  ExecutionContext* context;
  void* stream;  // out
};
struct ThreadPoolScheduleArgs : Versioned {
  ExecutionContext* context;
  void (*task)(void* data);
  void* data;
};
struct ThreadPoolNumThreadsArgs : Versioned {
  ExecutionContext* context;
  int64_t* num_threads;  // out
};
struct DeviceOrdinalGetArgs : Versioned {
  ExecutionContext* context;
  int32_t ordinal;  // out
};

// XLA's functions. A function that returns an Error gives it to the caller, who destroys it.
struct Api : Versioned {
  using Unused = void (*)();
  ApiVersion version;
  const void* internal;
  Error* (*error_create)(ErrorCreateArgs*);
  Unused error_get_message;
  void (*error_destroy)(ErrorDestroyArgs*);
  Unused handler_register;
  Error* (*stream_get)(StreamGetArgs*);
  Unused type_register;
  Unused execution_context_get;
  Error* (*state_set)(StateArgs*);
  Error* (*state_get)(StateArgs*);
  Unused device_memory_allocate;
  Unused device_memory_free;
  Error* (*thread_pool_schedule)(ThreadPoolScheduleArgs*);
  Error* (*thread_pool_num_threads)(ThreadPoolNumThreadsArgs*);
  Error* (*future_create)(FutureCreateArgs*);
  Error* (*future_set_available)(FutureSetAvailableArgs*);
  Error* (*future_set_error)(FutureSetErrorArgs*);
  Unused run_id_get;
  Error* (*device_ordinal_get)(DeviceOrdinalGetArgs*);
};

// One call of a handler: Error* handler(CallFrame*).
struct CallFrame : Versioned {
  const Api* api;
  ExecutionContext* context;
  Stage stage;
  Values args;
  Values rets;
  Attributes attrs;
  // A handler that returns before its work is done sets this. XLA keeps the elements of arguments
  // and results, and the attributes, until the future is complete; but not the Buffers.
  Future* future;
};

// The question for the handler's version, which XLA asks when the handler is registered.
struct Metadata {
  size_t struct_size;
  ApiVersion version;
  uint32_t traits;
  TypeId state_type_id;
};
struct MetadataExtension : Extension {
  Metadata* metadata;
};

// Returns the size that `args` says in its first member.
template <class Args>
constexpr Args Sized(Args args) {
  args.struct_size = sizeof(Args);
  return args;
}

}}}}  // namespace opkit::detail::xla

#endif  // OPKIT_EXPORT_XLA_ABI_HPP_
