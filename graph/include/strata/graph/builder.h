#pragma once

#include <initializer_list>
#include <string>

#include <strata/graph/program.h>

namespace strata {

/// A symbolic tensor while a model is being recorded. A dead one (after an error) makes further dead ones.
struct Value {
  ValueId id = kNoValue;
};

struct ParamOptions {
  Init init = {};
  bool decay = true;
  bool trainable = true;
};

/// Records a model: looks eager, executes nothing. Sticky: the first error is kept with op name and shapes,
/// later calls return dead values, and finish() returns it.
///
/// Shapes: T = batch * seq tokens, one row a token; weights are [out, in].
class Builder {
 public:
  Value param(std::string name, Shape shape, ParamOptions options);
  Value input(std::string name, Shape shape, DType dtype);
  /// Instructions from here on belong to region `name`. A block whose forward may run again in backward says
  /// so.
  void region(std::string name, bool recompute);

  Value embedding(Value tokens, Value token_table, Value position_table, int seq);  ///< [T] -> [T, h]
  Value layernorm(Value x, Value weight, Value bias, float eps);                    ///< [T, h] -> [T, h]
  Value linear(Value x, Value weight, Value bias = {});  ///< [T, K] x [N, K] -> [T, N]
  Value gelu(Value x);                                   ///< tanh form
  Value attention(Value qkv, int heads, int seq);        ///< causal, [T, 3h] -> [T, h]
  Value add(Value a, Value b);
  Value cross_entropy(Value logits,
                      Value targets);  ///< [T, V], [T] -> mean loss [1]; targets below 0 do not count

  /// The program with these values alive at its end. Errors: the first one met.
  Result<Program> finish(std::initializer_list<std::pair<std::string, Value>> outputs);

 private:
  Value op(Op op, std::initializer_list<Value> in, Attrs attrs = {});
  Program program_;
  Status error_;
};

}  // namespace strata
