"""The benchmark behind scripts/int8-table: what int8 gains and loses against bf16 and fp32."""
