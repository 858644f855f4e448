from lockstep.reference import lr_policies, strict

more = {"exp_decay": (0.5, False), "poly_decay": (), "inv_poly_decay": (0.1,)}
for name, policies in ("default", lr_policies), ("strict", strict.lr_policies):
    for policy, arguments in more.items():
        try:
            rate = getattr(policies, policy)(5, 1, 10, *arguments)
            print(f"{name}: {policy} {rate:.4f}")
        except TypeError as error:
            print(f"{name}: {error}")
