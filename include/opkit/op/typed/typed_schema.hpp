// TypedSchema: an OpSchema filled in from the table of a typed operator's parameters, and the shape
// rules that its builder adds, run in order as the schema's inference.
#ifndef OPKIT_OP_TYPED_TYPED_SCHEMA_HPP_
#define OPKIT_OP_TYPED_TYPED_SCHEMA_HPP_

#include "opkit/op/op_registry.hpp"
#include "opkit/op/typed/typed_kernel.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Shared by the builder and the schema's functions.
class OPKIT_IMAGE_LOCAL TypedSchema final : public RefCounted {
 public:
  static IntrusivePtr<TypedSchema> Make(const char* name, const char* file, int line,
                                        std::span<const TypedParameter> rows);
  TypedSchema(OpSchema& filled, std::span<const TypedParameter> rows);

  // These inputs and outputs have one shape. The names of both are mixed: a negative place stands
  // for a name of the other list.
  void SameShape(std::initializer_list<int> inputs, std::initializer_list<int> outputs);
  void AddRule(UniqueFunction<void(InferenceContext&)> rule);
  void AddInplace(int input, int output);
  // Registers a kernel, and adds its element types to those of the kernels before it.
  void AddKernel(DeviceType device, const TypedKernel& kernel, MakeTyped make) noexcept;
  void AddProblem(std::string_view what);

  OpSchema& schema;

 private:
  void Describe(const TypedParameter& row, std::string doc, std::vector<DType> dtypes);
  void Infer(InferenceContext& context);

  std::vector<std::pair<int, int>> inplace_;
  std::vector<UniqueFunction<void(InferenceContext&)>> rules_;
  const std::span<const TypedParameter> rows_;
  std::vector<DType> element_types_;
  int element_input_ = -1;
};

using TypedSchemaPtr = IntrusivePtr<TypedSchema>;

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/typed/impl/typed_schema.ipp"
#endif

#endif  // OPKIT_OP_TYPED_TYPED_SCHEMA_HPP_
