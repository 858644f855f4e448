from lockstep.reference import lr_policies, strict

arguments = {"d_model": 16, "warmup_steps": 10, "max_lr": 0.05, "dtype": "float16"}
for name, policies in ("default", lr_policies), ("strict", strict.lr_policies):
    try:
        print(f"{name}: {policies.transformer_policy(9, 2.0, **arguments)}")
    except TypeError as error:
        print(f"{name}: {error}")
