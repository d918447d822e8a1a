// The descriptions of an operator's attributes, inputs and outputs: the same types in a schema and
// in a library's record.
#ifndef OPKIT_OP_SCHEMA_VALUE_SCHEMA_HPP_
#define OPKIT_OP_SCHEMA_VALUE_SCHEMA_HPP_

#include <optional>

#include "opkit/core/attribute.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// An attribute that an operator accepts.
struct AttributeSchema {
  std::string name;
  std::string doc;
  bool required = false;
  std::optional<AttributeType> type;  // unset: any
  std::optional<Attribute> default_value;
  std::vector<std::string> values = {};  // allowed strings, also in lists; empty: any

  // Returns the first string of an attribute that `values` lacks; null if all strings are allowed.
  const std::string* FindOther(const Attribute& given) const {
    for (const std::string& found : given.values().strings) {
      bool allowed = values.empty();
      for (const std::string& value : values) allowed |= value == found;
      if (!allowed) return &found;
    }
    return nullptr;
  }
};

// An input or output.
struct ValueSchema {
  std::string name;
  std::string doc;
  std::vector<DType> dtypes;  // empty: any but string, sequence and optional

  // True if the dtype is allowed, or unknown.
  bool Allows(DType dtype) const {
    for (const DType allowed : dtypes)
      if (allowed == dtype) return true;
    return dtype == DType::kUndefined || (dtypes.empty() && !IsObject(dtype));
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_SCHEMA_VALUE_SCHEMA_HPP_
