// The rules of an OpSchema that its nodes are verified against: how many inputs and outputs a node
// has, which of them may be one blob, and which attributes it gives.
#ifndef OPKIT_OP_SCHEMA_RULES_HPP_
#define OPKIT_OP_SCHEMA_RULES_HPP_

#include "opkit/base/unique_function.hpp"
#include "opkit/op/operator_def.hpp"
#include "opkit/op/value_schema.hpp"

namespace opkit::inline OPKIT_ABI {

namespace detail {

// Functions in these classes are mutable: rules are asked through const references, and a function
// keeps nothing that the answer depends on.

// How many inputs, or outputs, a node may have: a range and, within it, a list or a predicate.
class CountRule {
 public:
  static constexpr int kAny = 1 << 30;

  void SetRange(int least, int most) { min_ = least, max_ = most; }
  void SetList(std::initializer_list<int> allowed);
  void SetPredicate(UniqueFunction<bool(int)> allowed);
  int least() const { return min_; }
  int most() const { return max_; }
  // -1 where the range has more than one number.
  int fixed() const { return min_ == max_ ? min_ : -1; }
  bool Allows(int count) const;
  // "2", "1 to 3", "at least 1", "one of [1, 3]", …
  std::string Describe() const;

 private:
  int min_ = 0, max_ = kAny;
  std::vector<int> list_;
  mutable UniqueFunction<bool(int)> predicate_;
};

// The numbers of inputs and outputs, and how one follows from the other or from attributes.
struct ArityRules {
  CountRule inputs, outputs;
  mutable UniqueFunction<bool(int, int)> pair_allowed;
  mutable UniqueFunction<int(int)> outputs_of_inputs;
  mutable UniqueFunction<std::pair<int, int>(const Arguments&)> of_arguments;

  // The number of outputs; -1 when the inputs and attributes do not decide it.
  int OutputsOf(int num_inputs) const;
  int OutputsOf(int num_inputs, const Arguments& args) const;
  // {inputs, outputs} of a node with these attributes; -1 where they leave a number open.
  std::pair<int, int> Of(const Arguments& args) const;
  // Why a node of `op` may not have these numbers; empty when it may. The same holds for Verify
  // below.
  std::string Verify(const std::string& op, const OperatorDef& def) const;
};

// Pairs {input, output} that may, or must, be one blob.
struct InplaceRules {
  using Predicate = UniqueFunction<bool(int, int)>;
  mutable Predicate allowed, enforced;

  static Predicate AnyOf(std::initializer_list<std::pair<int, int>> pairs);
  static bool OneToOne(int input, int output) { return input == output; }
  bool Must(int input, int output) const { return enforced && enforced(input, output); }
  bool May(int input, int output) const {
    return Must(input, output) || (allowed && allowed(input, output));
  }
  std::string Verify(const std::string& op, const OperatorDef& def) const;
};

// Declared attributes. Without any declared, a node may give every attribute.
struct AttributeRules {
  std::vector<AttributeSchema> declared;
  bool unknown_allowed = false;

  // Null when it is not declared.
  const AttributeSchema* Find(std::string_view name) const;
  bool Takes(std::string_view name) const {
    return declared.empty() || unknown_allowed || Find(name);
  }
  std::string Suggest(std::string_view name) const;
  std::string Verify(const std::string& op, const Arguments& args) const;
};

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/schema_rules.ipp"
#endif

#endif  // OPKIT_OP_SCHEMA_RULES_HPP_
