// TypedSchema: fills in an OpSchema from the table of a typed operator's parameters. The shape
// rules that the builder adds run in order as the schema's inference.
#ifndef OPKIT_OP_TYPED_TYPED_SCHEMA_HPP_
#define OPKIT_OP_TYPED_TYPED_SCHEMA_HPP_

#include "opkit/op/op_registry.hpp"
#include "opkit/op/typed/typed_kernel.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The schema of a typed operator and its rules, shared by the builder and the schema's functions.
class OPKIT_IMAGE_LOCAL TypedSchema final : public RefCounted {
 public:
  static IntrusivePtr<TypedSchema> Make(const char* name, const char* file, int line,
                                        std::span<const TypedParameter> rows);
  TypedSchema(OpSchema& filled, std::span<const TypedParameter> rows);

  // Requires the same shape of these inputs and outputs. Both lists come from one list of names: an
  // index is -1 if the name is in the other list.
  void SameShape(std::initializer_list<int> inputs, std::initializer_list<int> outputs);
  OPKIT_COLD void AddRule(UniqueFunction<void(InferenceContext&)> rule) {
    rules_.push_back(std::move(rule));
  }
  OPKIT_COLD void AddInplace(int input, int output) { inplace_.emplace_back(input, output); }
  // Registers a kernel, and adds its element types to those of earlier kernels.
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

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/typed/impl/typed_schema.ipp"
#endif

#endif  // OPKIT_OP_TYPED_TYPED_SCHEMA_HPP_
